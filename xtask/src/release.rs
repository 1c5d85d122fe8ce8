//! `cargo xtask release`: what a release needs beyond the tests. The cheap part is also a part of `ci`.

use std::fs;
use std::path::Path;

use crate::run::{Result, cargo, command, output, root, run, target};
use crate::tools::Tool;
use crate::{semver, setup};

/// What each manifest of a published crate must contain.
const MANIFEST: [&str; 6] = [
    "version.workspace = true",
    "license.workspace = true",
    "rust-version.workspace = true",
    "readme = \"README.md\"",
    "description = \"",
    "documentation = \"https://docs.rs/",
];

/// What lies in the folder of a published crate, so that each package contains it.
const FILES: [&str; 3] = ["README.md", "LICENSE-MIT", "LICENSE-APACHE"];

const DEB: Tool =
    Tool { program: "cargo-deb", package: "cargo-deb", version: "3.8.0", install: &["--debug"] };

/// Has the schemas of Kubernetes' resources.
const VALIDATOR: &str = "kubernetes-validate==1.37.0";

/// Returns the folders of the published crates: those in the root that do not say otherwise, and the root.
pub(crate) fn published() -> Result<Vec<String>> {
    let entries = fs::read_dir(root()).map_err(|e| format!("{}: {e}", root().display()))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let is_published = |name: &String| {
        let manifest = fs::read_to_string(root().join(name).join("Cargo.toml")).unwrap_or_default();
        manifest.contains("[package]") && !manifest.contains("publish = false")
    };
    let mut folders: Vec<_> = names.chain([".".to_owned()]).filter(is_published).collect();
    folders.sort();
    Ok(folders)
}

/// Returns the name of the crate in a folder.
fn name(folder: &str) -> &str {
    if folder == "." { "zlock" } else { folder }
}

/// Checks the manifests, that each crate can be packaged, and that no dependency needs a newer Rust.
pub(crate) fn check() -> Result {
    let mut wrong = Vec::new();
    for folder in published()? {
        let path = root().join(&folder).join("Cargo.toml");
        let manifest = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        wrong.extend(
            MANIFEST
                .iter()
                .filter(|line| !manifest.contains(**line))
                .map(|line| format!("{folder}: no {line}")),
        );
        // A link of git is a file with a path elsewhere.
        let has = |name: &&str| {
            fs::read_to_string(root().join(&folder).join(name)).is_ok_and(|text| text.len() > 100)
        };
        wrong.extend(FILES.iter().filter(|name| !has(name)).map(|name| format!("{folder}: no {name}")));
    }
    wrong.extend(too_new()?);
    if !wrong.is_empty() {
        return Err(wrong.join("\n"));
    }
    // Versions of path dependencies, included files, and the order of the crates.
    run(cargo(&["publish", "--workspace", "--dry-run", "--no-verify", "--allow-dirty", "--quiet"]))
}

/// Returns the dependencies of the published crates that need a newer Rust than the workspace promises.
fn too_new() -> Result<Vec<String>> {
    let mut tree = cargo(&[
        "tree",
        "--quiet",
        "-e",
        "normal,build",
        "--prefix",
        "none",
        "--format",
        "{p}",
        "--all-features",
    ]);
    for folder in published()? {
        tree.args(["-p", name(&folder)]);
    }
    let tree = output(tree)?;
    let metadata = output(cargo(&["metadata", "--quiet", "--format-version", "1", "--all-features"]))?;
    let manifest = fs::read_to_string(root().join("Cargo.toml")).map_err(|e| e.to_string())?;
    let ours = manifest.lines().find_map(|line| line.strip_prefix("rust-version = \"")?.strip_suffix('"'));
    Ok(newer(&metadata, ours.unwrap_or_default(), |package| {
        tree.lines().any(|line| line.starts_with(package))
    }))
}

/// Returns the packages in cargo's metadata that need a newer Rust.
fn newer(metadata: &str, ours: &str, is_used: impl Fn(&str) -> bool) -> Vec<String> {
    let (mut package, mut newer) = (String::new(), Vec::new());
    // Objects of packages and of their dependencies begin alike, but only a package goes on with its version.
    for part in metadata.split("{\"name\":\"").skip(1) {
        let (name, rest) = part.split_once('"').unwrap_or((part, ""));
        if let Some((version, _)) = rest.strip_prefix(",\"version\":\"").and_then(|rest| rest.split_once('"'))
        {
            package = format!("{name} v{version}");
        }
        let needs =
            part.split_once("\"rust_version\":\"").and_then(|(_, rest)| Some(rest.split_once('"')?.0));
        if let Some(needs) = needs.filter(|needs| numbers(needs) > numbers(ours) && is_used(&package)) {
            newer.push(format!("{package} needs Rust {needs}, and zlock promises {ours}"));
        }
    }
    newer
}

fn numbers(version: &str) -> [u32; 3] {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    std::array::from_fn(|_| parts.next().unwrap_or(0))
}

/// Builds everything that a release consists of, and tries it.
pub(crate) fn release(args: &[String]) -> Result {
    check()?;
    if let Some(tag) = args.first() {
        semver::check(tag)?;
    }
    kubernetes()?;
    let program = static_program()?;
    run(command(&program, &["--version"]))?;
    deb()?;
    minimal_versions()?;
    packages()
}

/// Builds each package from what it contains.
///
/// In a new folder: of a package that was built in the same folder before, cargo keeps the sources, even if the package has changed.
fn packages() -> Result {
    let folder = target().join(format!("publish-{}", std::process::id()));
    let mut publish = cargo(&["publish", "--workspace", "--dry-run", "--allow-dirty"]);
    publish.env("CARGO_TARGET_DIR", &folder);
    run(publish)?;
    fs::remove_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))
}

/// Builds the command without shared libraries, also those of the C library. Returns its path.
fn static_program() -> Result<String> {
    let host = output(command("rustc", &["--print", "host-tuple"]))?;
    let folder = target().join("static");
    let mut build = cargo(&["build", "--release", "--locked", "-p", "zlock-cli", "--target", host.trim()]);
    build.env("RUSTFLAGS", "-C target-feature=+crt-static").env("CARGO_TARGET_DIR", &folder);
    run(build)?;
    let program = folder.join(host.trim()).join("release/zlock").display().to_string();
    let linked = command("ldd", &[&program]).output().map_err(|e| format!("ldd: {e}"))?;
    let text = String::from_utf8_lossy(&[linked.stdout, linked.stderr].concat()).into_owned();
    println!("{program}: {}", text.trim());
    if text.contains("=>") { Err(format!("{program} needs shared libraries")) } else { Ok(program) }
}

/// Builds the Debian package, installs it if the user may, and runs the installed command.
fn deb() -> Result {
    run(cargo(&["build", "--release", "--locked", "-p", "zlock-cli"]))?;
    let program = target().join("release/zlock").display().to_string();
    let assets = target().join("assets");
    fs::create_dir_all(&assets).map_err(|e| format!("{}: {e}", assets.display()))?;
    for (name, args) in [
        ("zlock.1", &["man"][..]),
        ("zlock.bash", &["completions", "bash"]),
        ("_zlock", &["completions", "zsh"]),
        ("zlock.fish", &["completions", "fish"]),
    ] {
        let file = assets.join(name);
        fs::write(&file, output(command(&program, args))?).map_err(|e| format!("{}: {e}", file.display()))?;
    }
    let package = target().join("zlock.deb").display().to_string();
    run(command(&DEB.path()?, &["-p", "zlock-cli", "--no-build", "--output", &package]))?;
    run(command("dpkg-deb", &["--contents", &package]))?;
    if !Path::new("/usr/bin/dpkg").exists() || !setup::is_root() {
        println!("to try it: sudo dpkg --install {package}");
        return Ok(());
    }
    run(command("dpkg", &["--install", &package]))?;
    let tried = run(command("/usr/bin/zlock", &["run", "--url", "mem://try", "a", "--", "true"]));
    run(command("dpkg", &["--remove", "zlock-cli"]))?;
    tried
}

/// Checks the published crates with the oldest versions of their dependencies that the manifests allow.
fn minimal_versions() -> Result {
    let folder = target().join("minimal");
    let copy = folder.join("zlock").display().to_string();
    if Path::new(&copy).exists() {
        fs::remove_dir_all(&copy).map_err(|e| format!("{copy}: {e}"))?;
    }
    run(command("git", &["clone", "--quiet", ".", &copy]))?;
    let here = |args: &[&str]| {
        let mut cargo = cargo(args);
        // Only the choice of versions is unstable.
        cargo.current_dir(&copy).env("RUSTC_BOOTSTRAP", "1").env("CARGO_TARGET_DIR", folder.join("target"));
        cargo
    };
    run(here(&["update", "--quiet", "-Z", "direct-minimal-versions"]))?;
    let mut checked = here(&["check", "--quiet", "--all-features"]);
    for folder in published()? {
        checked.args(["-p", name(&folder)]);
    }
    run(checked)
}

/// Checks the manifests in `contrib/kubernetes` against the schemas of Kubernetes.
fn kubernetes() -> Result {
    let folder = target().join("kubernetes-validate");
    let program = folder.join("bin/kubernetes-validate").display().to_string();
    if !Path::new(&program).exists() {
        let folder = folder.display().to_string();
        run(command("python3", &["-m", "venv", &folder]))?;
        run(command(&format!("{folder}/bin/pip"), &["install", "--quiet", VALIDATOR]))?;
    }
    let mut validate = command(&program, &["--strict"]);
    let files = fs::read_dir(root().join("contrib/kubernetes")).map_err(|e| e.to_string())?;
    validate.args(files.flatten().map(|file| file.path()));
    run(validate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_crate_that_users_depend_on_is_published() {
        let published = published().unwrap_or_default();
        for (folder, is_published) in
            [(".", true), ("zlock-core", true), ("zlock-cli", true), ("xtask", false), ("zlock-proof", false)]
        {
            assert_eq!(published.iter().any(|one| one == folder), is_published, "{folder}: {published:?}");
        }
    }

    #[test]
    fn only_used_packages_that_need_a_newer_rust_are_named() {
        let package = |name: &str, needs: &str| {
            format!(
                "{{\"name\":\"{name}\",\"version\":\"1.2.3\",\"dependencies\":[{{\"name\":\"x\",\"source\":null}}],\"rust_version\":\"{needs}\"}}"
            )
        };
        let metadata =
            [package("old", "1.88.0"), package("new", "1.90.1"), package("unused", "1.95")].concat();
        let found = newer(&metadata, "1.88", |package| package != "unused v1.2.3");
        assert_eq!(found, ["new v1.2.3 needs Rust 1.90.1, and zlock promises 1.88"]);
    }
}
