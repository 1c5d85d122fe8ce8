//! The terminal and its foreground process group.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd as _;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process_group};
use rustix::stdio::{stdin, stdout};
use rustix::termios::{isatty, tcgetpgrp, tcsetpgrp};

use crate::sys;

/// The terminal that zlock was started on.
#[derive(Debug)]
pub(super) struct Terminal {
    file: File,
    /// The front's process group, which is a job of the shell.
    job: Pid,
    /// `true` if standard input and output are terminals. If not, another process of a pipeline may use this one.
    is_alone: bool,
}

impl Terminal {
    /// Returns the controlling terminal, if there is one. Must be called in the front.
    pub(super) fn open() -> Option<Self> {
        let file = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        let is_alone = isatty(stdin()) && isatty(stdout());
        Some(Terminal { file, job: sys::group_of(None)?, is_alone })
    }

    fn has(&self, group: Pid) -> bool {
        tcgetpgrp(self.file.as_fd()) == Ok(group)
    }

    /// Returns `true` if the shell's job has the terminal.
    pub(super) fn is_ours(&self) -> bool {
        self.has(self.job)
    }

    /// Gives the terminal to the group if the shell's job has it. Only makes system calls.
    pub(super) fn lend(&self, group: Pid) -> io::Result<()> {
        if self.is_ours() {
            tcsetpgrp(self.file.as_fd(), group)?;
        }
        Ok(())
    }

    /// Gives the terminal to a group that has not asked for it, unless a neighbour in a pipeline may use it. Only makes
    /// system calls.
    pub(super) fn lend_unasked(&self, group: Pid) -> io::Result<()> {
        if self.is_alone { self.lend(group) } else { Ok(()) }
    }

    /// Takes the terminal back from a group that is gone: that of a process that could not execute its command.
    pub(super) fn take_back_from_the_dead(&self) {
        if let Ok(group) = tcgetpgrp(self.file.as_fd())
            && test_kill_process_group(group) == Err(Errno::SRCH)
        {
            let _ = tcsetpgrp(self.file.as_fd(), self.job);
        }
    }

    /// Takes the terminal back if the group has it.
    pub(super) fn take_back(&self, group: Pid) {
        if self.has(group) {
            let _ = tcsetpgrp(self.file.as_fd(), self.job);
        }
    }
}
