# The gateway: `docker build -t fenced .`, then `docker run -v ./gateway.yaml:/etc/fenced/gateway.yaml:ro fenced`.
# It writes to /tmp only: streams wait there if the S3 server ignores the condition of a multipart upload.
# The digest names the index of the image for all processors. `docker buildx imagetools inspect
# node:24.21.0-bookworm-slim` prints that of the newest build, with later fixes of Debian.
ARG NODE_IMAGE=node:24.21.0-bookworm-slim@sha256:d6aa754f16b3197301076f047b5def2f02ea1dbbc2ca920407d46d7ec7f87b20

FROM ${NODE_IMAGE} AS build
ENV CI=true
WORKDIR /src
COPY . .
# No install scripts: this image brings Node itself.
RUN npx --yes pnpm@12.21.0 install --frozen-lockfile --ignore-scripts --filter '{packages/fenced}...' --filter '{.}' \
  && node tools/inline.ts \
  && node_modules/.bin/tsc -b packages/fenced \
  && npx --yes pnpm@12.21.0 --filter '{packages/fenced}' deploy --prod --legacy --ignore-scripts /app

FROM ${NODE_IMAGE}
COPY --from=build /app /app
WORKDIR /app
# These override the file. The container's host decides which port can be reached, and the health check
# needs a fixed one. Without credentials in its configuration, the gateway refuses to listen on 0.0.0.0.
ENV NODE_ENV=production FENCED_GATEWAY_LISTEN_HOST=0.0.0.0 FENCED_GATEWAY_LISTEN_PORT=8080
EXPOSE 8080
USER 1000:1000
# Checks liveness only: a restart repairs no dependency. /readyz is for the load balancer.
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
  CMD ["node", "-e", "const port = process.env.FENCED_GATEWAY_OPERATIONS_PORT || process.env.FENCED_GATEWAY_LISTEN_PORT; fetch('http://127.0.0.1:' + port + '/livez').then((answer) => process.exit(answer.ok ? 0 : 1), () => process.exit(1))"]
ENTRYPOINT ["node", "/app/bin/fenced.js"]
CMD ["gateway", "--config", "/etc/fenced/gateway.yaml"]
