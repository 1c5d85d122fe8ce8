# An image that contains only the command `zlock`, linked statically, for use in other images:
#
#     COPY --from=zlock /zlock /usr/local/bin/zlock
#
# `docker build -t zlock .` builds it. `cargo xtask release` builds the same binary without Docker and runs it.
FROM rust:1.95-bookworm AS build
RUN apt-get update && apt-get install --yes --no-install-recommends cmake protobuf-compiler libprotobuf-dev
COPY . /zlock
WORKDIR /zlock
RUN RUSTFLAGS="-C target-feature=+crt-static" \
    cargo build --release --locked -p zlock-cli --target "$(rustc --print host-tuple)" \
    && cp "target/$(rustc --print host-tuple)/release/zlock" /zlock.static

FROM scratch
COPY --from=build /zlock.static /zlock
ENTRYPOINT ["/zlock"]
