//! The spans of a lock in OpenTelemetry: the acquisition, the hold with its token, and the work inside it.
//!
//! Run it with `cargo run --example opentelemetry --features mem`. It prints the spans; a service passes its own exporter.

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let exporter = opentelemetry_stdout::SpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("orders"));
    // The spans of zlock are on the level debug; requests to the store would be on trace.
    let levels = Targets::new().with_default(LevelFilter::INFO).with_target("zlock", LevelFilter::DEBUG);
    tracing_subscriber::registry().with(layer.with_filter(levels)).init();

    let client = zlock::connect("mem://").await?;
    // Made inside, so that it is a child of the hold.
    let work = async { tracing::info_span!("ship order", order = 42).in_scope(|| "shipped") };
    let shipped = client.mutex("/app/orders/42")?.run(work).await?;
    println!("{shipped}");
    client.close().await?;
    provider.shutdown()?;
    Ok(())
}
