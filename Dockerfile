# The gateway: `docker build -t fenced .`, then `docker run -v ./gateway.yaml:/etc/fenced/gateway.yaml:ro fenced`.
# What it needs of its own is /tmp, where streams wait whose server cannot complete uploads under a condition.
ARG NODE_IMAGE=node:24-bookworm-slim

FROM ${NODE_IMAGE} AS build
ENV CI=true
WORKDIR /src
COPY . .
# No install scripts: what the lockfile has of Node itself is what this image brings.
RUN npx --yes pnpm@12.21.0 install --frozen-lockfile --ignore-scripts --filter '{packages/fenced}...' --filter '{.}' \
  && node tools/inline.ts \
  && node_modules/.bin/tsc -b packages/fenced \
  && npx --yes pnpm@12.21.0 --filter '{packages/fenced}' deploy --prod --legacy --ignore-scripts /app

FROM ${NODE_IMAGE}
COPY --from=build /app /app
WORKDIR /app
# These go before the file: what is outside the container decides which address and port can be reached, and the health check
# below knows where to ask. Without credentials in its configuration the gateway refuses to listen there.
ENV NODE_ENV=production FENCED_GATEWAY_LISTEN_HOST=0.0.0.0 FENCED_GATEWAY_LISTEN_PORT=8080
EXPOSE 8080
USER 1000:1000
# Only whether it lives: dependencies that are down are not mended by a restart. /readyz is for the load balancer.
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
  CMD ["node", "-e", "fetch('http://127.0.0.1:' + process.env.FENCED_GATEWAY_LISTEN_PORT + '/livez').then((answer) => process.exit(answer.ok ? 0 : 1), () => process.exit(1))"]
ENTRYPOINT ["node", "/app/bin/fenced.js"]
CMD ["gateway", "--config", "/etc/fenced/gateway.yaml"]
