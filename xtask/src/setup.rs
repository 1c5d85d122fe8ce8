//! Installs what the tests need besides cargo.

use std::path::Path;

use crate::run::{Result, command, output, run};

/// A Debian package, and the parts of it that the tests use.
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
/// No test uses a server that a package starts. With systemd, `etcd-server` starts one on port 2379, and `prometheus` one on
/// port 9090.
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
    for args in [&["update", "--quiet"][..], &install] {
        let mut apt = command("apt-get", args);
        apt.env("DEBIAN_FRONTEND", "noninteractive");
        run(apt)?;
    }
    Ok(())
}

fn missing() -> impl Iterator<Item = &'static Need> {
    NEEDS.iter().filter(|need| !Path::new(need.used).exists())
}

fn is_root() -> bool {
    output(command("id", &["-u"])).is_ok_and(|id| id.trim() == "0")
}
