//! What the small examples share: their command line, `[--url URL]`.

use std::process::ExitCode;

pub(crate) type Result<T = (), E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// Runs `example` on the store of the command line, `default` unless it names one. Exit code 0: the lock did
/// what it should; 1: it did not; 2: it could not run.
pub(crate) async fn main(
    name: &str,
    default: &str,
    example: impl AsyncFnOnce(&str) -> Result<bool>,
) -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let url = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => default,
        ["--url", url] => url,
        ref other => {
            let usage = format!(
                "Usage: cargo run [--features zk|etcd|postgres] --example {name} -- [--url URL]\n\n  \
                 --url URL   the store: {default} (default), zk://host:port, etcd://host:port or\n              \
                 postgres://user@host/database, with its feature"
            );
            if let ["--help" | "-h"] = other {
                println!("{usage}");
                return ExitCode::SUCCESS;
            }
            eprintln!("{usage}");
            return ExitCode::from(2);
        }
    };
    match example(url).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            println!("WRONG");
            ExitCode::from(1)
        }
        Err(e) => {
            eprintln!("{name}: {e}");
            ExitCode::from(2)
        }
    }
}
