//! The terminal, and which process group has it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd as _;

use rustix::process::{Pid, getpgrp};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

/// The terminal that zlock was started on.
#[derive(Debug)]
pub(super) struct Terminal {
    file: File,
    /// The front's process group: a job of the shell.
    job: Pid,
}

impl Terminal {
    /// Returns the controlling terminal, if there is one. To be called in the front.
    pub(super) fn open() -> Option<Self> {
        let file = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        Some(Terminal { file, job: getpgrp() })
    }

    fn has(&self, group: Pid) -> bool {
        tcgetpgrp(self.file.as_fd()) == Ok(group)
    }

    /// Returns whether the shell's job has the terminal.
    pub(super) fn is_ours(&self) -> bool {
        self.has(self.job)
    }

    /// Gives the terminal to the group, if the shell's job has it. Only makes system calls.
    pub(super) fn lend(&self, group: Pid) -> io::Result<()> {
        if self.is_ours() {
            tcsetpgrp(self.file.as_fd(), group)?;
        }
        Ok(())
    }

    /// Takes the terminal back from the group, if the group has it.
    pub(super) fn take_back(&self, group: Pid) {
        if self.has(group) {
            let _ = tcsetpgrp(self.file.as_fd(), self.job);
        }
    }
}
