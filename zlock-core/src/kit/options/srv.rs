//! Servers that a domain names by SRV records (RFC 2782).

use std::net::SocketAddr;

/// A domain whose SRV records name the servers, and the name servers to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Srv {
    /// The domain, such as `example.com`.
    pub domain: String,
    /// The name servers to ask. If empty, those of the system.
    pub nameservers: Vec<SocketAddr>,
}

/// One SRV record.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    priority: u16,
    weight: u16,
    port: u16,
    target: String,
}

impl Srv {
    /// Looks up the servers of a service such as `_zookeeper._tcp`, each `host:port`.
    ///
    /// Returns them in groups of the same priority, the preferred group first. Within a group the order is random, by weight.
    ///
    /// # Errors
    /// The name that was looked up, and what is wrong.
    ///
    /// # Cancel safety
    /// Safe.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time and I/O enabled.
    pub async fn servers(&self, service: &str) -> Result<Vec<Vec<String>>, String> {
        // Absolute, so that no search domain is appended.
        let name = format!("{service}.{}.", self.domain.trim_end_matches('.'));
        let records = lookup(self, &name).await.map_err(|why| format!("SRV records of {name}: {why}"))?;
        order(records, |below| fastrand::u32(..below)).map_err(|why| format!("SRV records of {name}: {why}"))
    }
}

/// Sorts servers by priority, and servers of the same priority as specified by RFC 2782: each next one is drawn with a
/// probability in proportion to its weight. `random` returns a number below its argument.
fn order(
    mut records: Vec<Record>,
    mut random: impl FnMut(u32) -> u32,
) -> Result<Vec<Vec<String>>, &'static str> {
    if records.is_empty() {
        return Err("there are none");
    }
    // The root as a target means that the service is not available.
    records.retain(|record| !record.target.is_empty());
    if records.is_empty() {
        return Err("the domain does not offer this service");
    }
    records.sort_by_key(|record| (record.priority, record.weight));
    let groups = records.chunk_by(|a, b| a.priority == b.priority).map(|group| {
        let (mut left, mut drawn) = (group.to_vec(), Vec::new());
        while !left.is_empty() {
            let sum: u32 = left.iter().map(|record| u32::from(record.weight)).sum();
            let mut mark = random(sum + 1);
            // Servers without weight come first, so only 0 draws them.
            let at = left.iter().position(|record| {
                let is_it = mark <= u32::from(record.weight);
                mark = mark.saturating_sub(u32::from(record.weight));
                is_it
            });
            let Record { port, target, .. } = left.remove(at.unwrap_or_default());
            drawn.push(format!("{target}:{port}"));
        }
        drawn
    });
    Ok(groups.collect())
}

#[cfg(not(feature = "srv"))]
#[allow(clippy::unused_async, reason = "the same signature with and without the feature")]
async fn lookup(_: &Srv, _: &str) -> Result<Vec<Record>, String> {
    Err("this build has no support for SRV records: enable the feature \"srv\" of the crate zlock".into())
}

/// Asks anew each time, without a cache: the lookup precedes a new connection, which needs the current answer.
#[cfg(feature = "srv")]
async fn lookup(srv: &Srv, name: &str) -> Result<Vec<Record>, String> {
    use hickory_resolver::TokioResolver;
    use hickory_resolver::config::{NameServerConfig, ResolverConfig};
    use hickory_resolver::net::runtime::TokioRuntimeProvider;
    use hickory_resolver::proto::rr::RData;

    let mut builder = if srv.nameservers.is_empty() {
        TokioResolver::builder_tokio().map_err(|e| format!("the system's settings of DNS: {e}"))?
    } else {
        let server = |addr: &SocketAddr| {
            let mut server = NameServerConfig::udp_and_tcp(addr.ip());
            server.connections.iter_mut().for_each(|connection| connection.port = addr.port());
            server
        };
        let servers = srv.nameservers.iter().map(server).collect();
        TokioResolver::builder_with_config(
            ResolverConfig::from_parts(None, Vec::new(), servers),
            TokioRuntimeProvider::default(),
        )
    };
    builder.options_mut().cache_size = 0;
    let resolver = builder.build().map_err(|e| e.to_string())?;
    let answer = match resolver.srv_lookup(name).await {
        Ok(answer) => answer,
        Err(error) if error.is_no_records_found() => return Ok(Vec::new()),
        Err(error) => return Err(error.to_string()),
    };
    let record = |data: &RData| {
        let RData::SRV(srv) = data else { return None };
        let target = srv.target.to_ascii().trim_end_matches('.').to_owned();
        Some(Record { priority: srv.priority, weight: srv.weight, port: srv.port, target })
    };
    Ok(answer.answers().iter().filter_map(|answer| record(&answer.data)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(priority: u16, weight: u16, target: &str) -> Record {
        Record { priority, weight, port: 1, target: target.into() }
    }

    #[test]
    fn priorities_are_groups() {
        let records = vec![record(20, 0, "c"), record(10, 0, "a"), record(20, 0, "d"), record(10, 0, "")];
        let groups = order(records, |_| 0).unwrap();
        assert_eq!(groups, [vec!["a:1"], vec!["c:1", "d:1"]]);
    }

    #[test]
    fn weights_are_probabilities() {
        let records = || vec![record(0, 3, "heavy"), record(0, 0, "none"), record(0, 1, "light")];
        let mut firsts = std::collections::BTreeMap::new();
        for mark in 0..=4 {
            let mut below = Vec::new();
            let groups = order(records(), |sum| {
                below.push(sum);
                if below.len() == 1 { mark } else { 0 }
            });
            let group = groups.unwrap().concat();
            assert_eq!((group.len(), below[0]), (3, 5));
            *firsts.entry(group[0].clone()).or_insert(0) += 1;
        }
        assert_eq!(firsts, [("heavy:1".into(), 3), ("light:1".into(), 1), ("none:1".into(), 1)].into());
    }

    #[test]
    fn none_and_the_root_are_refused() {
        assert_eq!(order(Vec::new(), |_| 0), Err("there are none"));
        assert_eq!(order(vec![record(0, 0, "")], |_| 0), Err("the domain does not offer this service"));
    }
}
