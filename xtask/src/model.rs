//! `cargo xtask model`: the model check of the waiting state machine, built for speed.

use crate::run::{Result, cargo, run};

pub(crate) fn model(args: &[String]) -> Result {
    let mut model = cargo(&["run", "--quiet", "--release", "-p", "zlock-proof", "--", "model"]);
    model.args(args);
    run(model)
}
