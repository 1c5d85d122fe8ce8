//! Installs what the tests need besides cargo.

use std::path::Path;

use crate::run::{Result, command, output, run};

/// A Debian package, and the part of it that the tests use. One folder in its path may be `*`.
struct Need {
    package: &'static str,
    used: &'static str,
}

const NEEDS: &[Need] = &[
    Need { package: "default-jre-headless", used: "/usr/bin/java" },
    Need { package: "libzookeeper-java", used: "/usr/share/java/zookeeper.jar" },
    // Applies the planted bugs.
    Need { package: "git", used: "/usr/bin/git" },
    // etcd's client needs protoc to build, and the files that its protocol imports.
    Need { package: "protobuf-compiler", used: "/usr/bin/protoc" },
    Need { package: "libprotobuf-dev", used: "/usr/include/google/protobuf/descriptor.proto" },
    Need { package: "etcd-server", used: "/usr/bin/etcd" },
    Need { package: "etcd-client", used: "/usr/bin/etcdctl" },
    Need { package: "postgresql", used: "/usr/lib/postgresql/*/bin/postgres" },
    Need { package: "mariadb-server", used: "/usr/sbin/mariadbd" },
    Need { package: "pgbouncer", used: "/usr/sbin/pgbouncer" },
    // Steps the clock of a server.
    Need { package: "faketime", used: "/usr/bin/faketime" },
    // The DNS server of the tests of SRV records.
    Need { package: "dnsmasq-base", used: "/usr/sbin/dnsmasq" },
    // Lets a server's disk hang.
    Need { package: "strace", used: "/usr/bin/strace" },
    // Its promtool checks the alert rules.
    Need { package: "prometheus", used: "/usr/bin/promtool" },
    // Peers on the same lock path.
    Need { package: "libcurator-recipes-java", used: "/usr/share/java/curator-recipes.jar" },
    Need { package: "python3-kazoo", used: "/usr/lib/python3/dist-packages/kazoo/client.py" },
];

/// Installs missing packages, if this is Debian and the user has the permission. Otherwise prints what to install.
///
/// No test uses a server that a package starts. With systemd, `etcd-server` starts one on port 2379, `prometheus` one on port
/// 9090, `pgbouncer` one on port 6432, and `mariadb-server` one on port 3306. `postgresql` would create a cluster, and is kept from it.
pub(crate) fn set_up() -> Result {
    let missing: Vec<_> = missing().collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = missing.iter().map(|need| need.package).collect();
    println!("missing for the tests on real servers: {}", names.join(" "));
    let mut install = vec!["install", "--yes", "--quiet", "--no-install-recommends"];
    install.extend(names);
    if !Path::new("/usr/bin/apt-get").exists() || !is_root() {
        println!("to install: sudo apt-get {}", install.join(" "));
        return Ok(());
    }
    if missing.iter().any(|need| need.package == "postgresql") {
        make_no_cluster()?;
    }
    for args in [&["update", "--quiet"][..], &install] {
        let mut apt = command("apt-get", args);
        // The second variable keeps the configuration that `make_no_cluster` has written.
        apt.env("DEBIAN_FRONTEND", "noninteractive").env("UCF_FORCE_CONFFOLD", "1");
        run(apt)?;
    }
    Ok(())
}

/// Keeps the package from creating a cluster and from starting its server, unless an operator has decided otherwise.
fn make_no_cluster() -> Result {
    let file = Path::new("/etc/postgresql-common/createcluster.conf");
    if file.exists() {
        return Ok(());
    }
    let folder = file.parent().unwrap_or(file);
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    std::fs::write(file, "create_main_cluster = false\n")
        .map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(())
}

fn missing() -> impl Iterator<Item = &'static Need> {
    NEEDS.iter().filter(|need| !is_there(need.used))
}

fn is_there(path: &str) -> bool {
    match path.split_once("/*/") {
        None => Path::new(path).exists(),
        Some((folder, rest)) => {
            let mut folders = std::fs::read_dir(folder).into_iter().flatten().flatten();
            folders.any(|entry| entry.path().join(rest).exists())
        }
    }
}

pub(crate) fn is_root() -> bool {
    output(command("id", &["-u"])).is_ok_and(|id| id.trim() == "0")
}
