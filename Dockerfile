# Glovebox's image: two static programs and nothing else, no shell, no package, no file to change.
#
# The programs are built before, since no base image with a compiler is assumed: `cargo xtask image product` does all of it,
# or by hand as docs/images.md shows. PROGRAMS is the folder that holds them, seen from the build's context.
FROM scratch

ARG PROGRAMS=target/x86_64-unknown-linux-gnu/release
ARG VERSION=0.0.0-unknown

LABEL org.opencontainers.image.title="Glovebox" \
      org.opencontainers.image.description="Ephemeral, fenced sandboxes for AI agents on Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/glovebox-dev/glovebox" \
      org.opencontainers.image.version="${VERSION}"

COPY --chown=0:0 --chmod=0755 ${PROGRAMS}/glovebox ${PROGRAMS}/glovebox-agent /

# Nobody's number; the files belong to root, so that not even they can be changed.
USER 65532:65532
ENTRYPOINT ["/glovebox"]
