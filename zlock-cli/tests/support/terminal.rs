//! A terminal, and what a command shows on it.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::process::{Child, Command};

use super::eventually;

/// A terminal with 80 columns. The command on it ends when the terminal does.
pub struct Terminal {
    keys: File,
    screen: Arc<Mutex<String>>,
    pub process: Child,
}

impl Terminal {
    /// Starts a command on a terminal of its own.
    pub fn start(command: &mut Command) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        tcsetwinsize(&master, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let slave =
            || Stdio::from(rustix::fs::open(&*name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap());
        let process = command.stdin(slave()).stdout(slave()).stderr(slave()).spawn().unwrap();
        let keys = File::from(master);
        let (mut output, screen) = (keys.try_clone().unwrap(), Arc::<Mutex<String>>::default());
        let shown = screen.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // An error means that no process has the terminal open any more.
            while let Ok(n @ 1..) = output.read(&mut bytes) {
                shown.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..n]));
            }
        });
        Terminal { keys, screen, process }
    }

    pub fn type_in(&mut self, text: &str) {
        self.keys.write_all(text.as_bytes()).unwrap();
    }

    /// Returns the output since the last [`clear`](Self::clear).
    pub fn screen(&self) -> String {
        self.screen.lock().unwrap().clone()
    }

    pub fn clear(&self) {
        self.screen.lock().unwrap().clear();
    }

    /// Waits until the output has a text. A terminal gets text without blanks in one piece.
    pub async fn shows(&self, text: &str) {
        eventually(text, || self.screen().contains(text).then_some(())).await;
    }
}

/// Prints the screen of a failed test.
impl Drop for Terminal {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- screen\n{:?}\n---", self.screen());
        }
    }
}
