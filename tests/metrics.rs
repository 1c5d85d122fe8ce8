//! The metrics of the example `metrics`, as scraped by Prometheus, with the dashboard and the alerts for them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;
use zlock_testkit::{Process, have_promtool, limit};

const DASHBOARD: &str = include_str!("../contrib/grafana/zlock.json");
const ALERTS: &str = include_str!("../contrib/prometheus/alerts.yml");
const GUIDE: &str = include_str!("../docs/guide/src/metrics.md");

/// The running example, and the address of its metrics.
struct Service {
    _process: Process,
    addr: String,
}

impl Service {
    async fn start(url: &str) -> Self {
        let mut process = Process::spawn(Process::built("examples/metrics"), &["--url", url], &[]);
        let addr = process.line_after("metrics: http://").await.replace("/metrics", "");
        Service { _process: process, addr }
    }

    /// Returns the text that Prometheus would get.
    async fn scrape(&self) -> Scrape {
        let mut stream = TcpStream::connect(&self.addr).await.unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        Scrape(answer.split_once("\r\n\r\n").unwrap().1.to_owned())
    }

    /// Scrapes until a condition holds.
    async fn until(&self, wanted: impl Fn(&Scrape) -> bool) -> Scrape {
        loop {
            let scrape = self.scrape().await;
            if wanted(&scrape) {
                return scrape;
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
}

struct Scrape(String);

impl Scrape {
    /// Returns the names of the samples.
    fn names(&self) -> BTreeSet<&str> {
        let samples = self.0.lines().filter(|line| !line.starts_with('#'));
        samples.filter_map(|line| line.split(['{', ' ']).next()).filter(|name| !name.is_empty()).collect()
    }

    /// Returns the value of the sample with this name and all of these labels.
    fn value(&self, name: &str, labels: &[&str]) -> Option<f64> {
        let sample = self.0.lines().find(|line| {
            line.split(['{', ' ']).next() == Some(name) && labels.iter().all(|label| line.contains(label))
        })?;
        sample.rsplit_once(' ')?.1.parse().ok()
    }
}

/// Returns the words of a text that are names of zlock's metrics.
fn metrics(text: &str, separator: char) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_lowercase() && c != separator);
    let prefix = format!("zlock{separator}");
    words.filter(|word| word.strip_prefix(&*prefix).is_some_and(|name| name.contains(separator))).collect()
}

#[tokio::test]
async fn every_metric_of_the_dashboard_and_of_the_alerts_exists() {
    limit(async {
        let named: BTreeSet<_> = metrics(DASHBOARD, '_').union(&metrics(ALERTS, '_')).copied().collect();
        assert!(named.len() >= 14, "{named:?}");
        let service = Service::start("mem://?session_timeout=1s").await;
        let scrape = service.until(|scrape| named.is_subset(&scrape.names())).await;
        // Every existing metric is in the dashboard and in the guide.
        let guide: BTreeSet<_> = metrics(GUIDE, '.').into_iter().map(|name| name.replace('.', "_")).collect();
        for name in scrape.names() {
            let family =
                ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
            assert!(named.iter().any(|named| named.starts_with(family)), "{name} is not in the dashboard");
            let family = family.trim_end_matches("_total").trim_end_matches("_seconds");
            assert!(guide.contains(family), "{family} is not in the guide: {guide:?}");
        }
        assert_eq!(guide.len(), 18, "{guide:?}");
        // Labels are names that the user gave, not paths.
        assert!(scrape.0.contains("name=\"/service/jobs\"") && !scrape.0.contains("job-"), "{}", scrape.0);
        assert_eq!(
            scrape.value("zlock_session_state", &["state=\"connected\"", "store=\"locks\""]),
            Some(1.0)
        );
        assert_eq!(scrape.value("zlock_lock_held", &["name=\"leader\"", "kind=\"election\""]), Some(1.0));
        assert_eq!(scrape.value("zlock_lock_losses_total", &["name=\"leader\"", "session_lost"]), Some(0.0));
    })
    .await;
}

#[tokio::test]
async fn promtool_finds_the_alert_rules_correct() {
    limit(async {
        if !have_promtool() {
            return;
        }
        let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/contrib/prometheus/alerts.yml");
        let out = Command::new("promtool").args(["check", "rules", rules]).output().unwrap();
        let text = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
        assert!(out.status.success() && text.contains("10 rules found"), "{text}");
    })
    .await;
}

/// The part of the session's life below which the alert on low slack fires.
fn low_slack() -> f64 {
    let (_, limit) = ALERTS.split_once("zlock_session_slack_seconds < ").unwrap();
    limit.split(' ').next().unwrap().parse().unwrap()
}

/// The alert fires where a client is no longer ready, and the guide and the dashboard name the same limit.
#[cfg(feature = "mem")]
#[tokio::test(start_paused = true)]
async fn low_slack_is_one_threshold() {
    let client = zlock::connect("mem://").await.unwrap();
    let guard = client.mutex("/app/orders/42").unwrap().acquire().await.unwrap();
    let required = client.health().required_slack.unwrap();
    let life = client.session_events().longest_slack().unwrap();
    assert!(
        (required.as_secs_f64() / life.as_secs_f64() - low_slack()).abs() < 1e-6,
        "{required:?} of {life:?}"
    );
    guard.release().await.unwrap();
    assert_eq!(low_slack(), 0.25, "as the texts say");
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for page in [GUIDE, include_str!("../docs/guide/src/operating.md")] {
        assert!(words(page).contains("a quarter of the session's life"));
    }
    assert!(DASHBOARD.contains("The alert fires below 25 %"));
}

/// The alert on low slack fires before the loss while the server does not respond.
#[cfg(feature = "zk")]
#[tokio::test]
async fn the_slack_falls_before_a_lock_is_lost() {
    limit(async {
        let Some(server) = zlock_testkit::zookeeper_or_skip().await else { return };
        let proxy = zlock_testkit::FaultProxy::start_zookeeper(server.addr()).await;
        let url = format!("zk://{}/metrics_slack?session_timeout=4s", proxy.connect_string());
        let service = Service::start(&url).await;
        let losses = |scrape: &Scrape| scrape.value("zlock_lock_losses_total", &["leader", "session_lost"]);
        let slack = |scrape: &Scrape| scrape.value("zlock_session_slack_seconds", &[]);
        let life = |scrape: &Scrape| scrape.value("zlock_session_life_seconds", &[]);
        let before = service.until(|scrape| losses(scrape).is_some() && life(scrape).is_some()).await;
        let life = life(&before).unwrap();
        let at_rest = slack(&before).unwrap();
        assert!(at_rest > 0.5 * life, "{at_rest} of {life}");
        println!("life {life:.3}, slack {at_rest:.3}, losses 0");

        proxy.freeze().await;
        let mut seen = vec![at_rest];
        loop {
            let scrape = service.scrape().await;
            let (now, lost) = (slack(&scrape).unwrap(), losses(&scrape).unwrap());
            let suspended = scrape.value("zlock_session_state", &["suspended"]).unwrap();
            println!("slack {now:.3}, suspended {suspended}, losses {lost}");
            if lost > 0.0 {
                break;
            }
            seen.push(now);
            sleep(Duration::from_millis(100)).await;
        }
        assert!(seen.is_sorted_by(|a, b| a >= b), "{seen:?}");
        assert!(seen.iter().any(|slack| *slack > 0.0 && *slack < low_slack() * life), "{seen:?}");
        proxy.heal().await;
        service.until(|scrape| scrape.value("zlock_session_state", &["connected"]) == Some(1.0)).await;
    })
    .await;
}
