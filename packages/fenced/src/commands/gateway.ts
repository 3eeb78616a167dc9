import { once } from 'node:events';
import { parseArgs } from 'node:util';
import { type Config, ConfigError, type ConfigSource, readConfig } from '@fenced/gateway/config';
import { createLog, type Log } from '@fenced/gateway/log';
import { type Command, print, understood } from '../command.js';
import { startGateway } from '../gateway.js';
import type { GatewaySecrets } from '../gateway-secrets.js';

/** Milliseconds in which the connections to the dependencies must close after the last request. */
const CLOSE_MS = 5_000;
/** Milliseconds in which the last lines of the log must be written. */
const LAST_LINES_MS = 1_000;
/** Milliseconds between two looks at the configuration and the files that it names. */
const LOOK_EVERY_MS = 5_000;
const EXIT_CUT_OFF = 1;
const EXIT_CONFIG = 78;

const options = { config: { type: 'string' }, check: { type: 'boolean' } } as const;

export const gateway: Command = {
  summary: 'serves leases and token-checked storage over HTTP',
  usage: `fenced gateway [--config gateway.yaml] [--check]

  --config FILE      a YAML file; docs/gateway-configuration.md lists its
                     fields, and their environment variables
  --check            print every mistake in the configuration, and end

Runs until SIGTERM or SIGINT. Then readiness fails at once, and running requests
have limits.graceMs to end. Connections to Redis, S3 and Postgres have ${CLOSE_MS / 1_000} s
more to close. A second signal ends the process at once.

Credentials and signing keys are read again on SIGHUP, and when a file of the
configuration has changed. A configuration with a mistake changes nothing.

Exit codes:
  0   all requests ended, and all connections closed
  ${EXIT_CUT_OFF}   requests were cut off, connections did not close in time, or the
      address was taken
  ${EXIT_CONFIG}  the configuration cannot be used`,

  async run(args) {
    const { values } = understood(() => parseArgs({ args: [...args], options }));
    const { config: file } = values;
    try {
      const source = { env: process.env, ...(file !== undefined && { file }) };
      const config = readConfig(source);
      if (!values.check) return await serve(config, source);
      for (const warning of config.warnings) print(`warning: ${warning}`);
      print('the configuration can be used');
      return 0;
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error;
      process.stderr.write(`fenced gateway: ${error.message}\n`);
      return EXIT_CONFIG;
    }
  },
};

async function serve(config: Config, source: ConfigSource): Promise<number> {
  const log = createLog(config.log);
  const code = await serveUntilAsked(config, source, log);
  // Nobody reads the log, or its disk is full. The lines that wait would keep the process alive.
  if (!(await log.flush(LAST_LINES_MS))) process.exit(code);
  return code;
}

async function serveUntilAsked(config: Config, source: ConfigSource, log: Log): Promise<number> {
  const signals = new AbortController();
  const asked = Promise.race(
    ['SIGTERM', 'SIGINT'].map((name) => once(process, name, { signal: signals.signal })),
  );
  for (const warning of config.warnings) log.warn(warning);
  try {
    const running = await startGateway(config, log);
    watchSecrets(running.secrets, source, log);
    log.info('listening', { url: running.url, operationsUrl: running.operationsUrl });
    await asked;
    // The next signal has no listener, so it ends the process.
    signals.abort();
    log.info('shutting down');
    const isWhole = await running.drain();
    endInTime(log);
    await running.close();
    log.info('stopped', { isWhole });
    return isWhole ? 0 : EXIT_CUT_OFF;
  } catch (error) {
    log.error('the gateway could not be started', error);
    return EXIT_CUT_OFF;
  } finally {
    asked.catch(() => undefined);
    signals.abort();
  }
}

/**
 * Reads credentials and signing keys again when it is asked, or when they have changed. It looks
 * every few seconds: a mounted secret changes through a link to its folder, of which a watched file
 * does not tell. A mistake is logged once, and everything stays as it was.
 */
function watchSecrets(secrets: GatewaySecrets, source: ConfigSource, log: Log): void {
  let mistake = '';
  const look = (isAsked: boolean): void => {
    try {
      if (secrets.replace(readConfig(source)) || isAsked)
        log.info('credentials and signing keys were read again');
      mistake = '';
    } catch (error) {
      if (isAsked || String(error) !== mistake)
        log.error('credentials and signing keys stay as they are', error);
      mistake = String(error);
    }
  };
  process.on('SIGHUP', () => look(true));
  setInterval(() => look(false), LOOK_EVERY_MS).unref();
}

/**
 * Ends the process after `CLOSE_MS` if something still keeps it alive. A server that hangs neither
 * answers a statement nor closes a connection. The timer itself does not keep the process alive.
 */
function endInTime(log: Log): void {
  setTimeout(() => {
    const open = process.getActiveResourcesInfo().join(' ');
    log.error('shut down with connections open', new Error(`not closed in ${CLOSE_MS} ms`), {
      open,
    });
    void log.flush(LAST_LINES_MS).then(() => process.exit(EXIT_CUT_OFF));
  }, CLOSE_MS).unref();
}
