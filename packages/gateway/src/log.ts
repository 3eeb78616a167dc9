import './node-version.js';
import { type DestinationStream, pino } from 'pino';
import type { LogLevel } from './config-schema.js';
import type { EndedRequest } from './ended-request.js';
import { Output, standardOutput } from './output.js';

/** Facts of a line besides its message. They contain no headers and no bodies. */
type Facts = Readonly<Record<string, string | number | boolean | bigint | null | undefined>>;

export interface Log {
  /**
   * Logs a request that has ended: its facts under the names of docs/gateway.md, and the error of a
   * 5xx.
   */
  request(ended: EndedRequest): void;
  info(message: string, facts?: Facts): void;
  warn(message: string, facts?: Facts): void;
  error(message: string, error: unknown, facts?: Facts): void;
  /** The number of lines that were dropped, because they could not be written. */
  droppedLines(): number;
  /** @returns true when all lines are written; false if that fails, or takes longer */
  flush(withinMs: number): Promise<boolean>;
}

/** W3C's Trace Context. */
const TRACEPARENT = /^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/;
/** Paths that a platform asks for all the time. */
const CHECKS: readonly string[] = ['/livez', '/readyz', '/metrics'];
const CAUSES_MAX = 3;

/**
 * Secrets that are never written, wherever they occur: in a driver's error message, for example.
 */
const SECRETS: readonly (readonly [RegExp, string])[] = [
  [/(?<=:\/\/)[^/?#\s]*@/g, '***@'],
  [/(?<=\b(?:Bearer|Basic|AWS4-HMAC-SHA256) )\S+.*/gi, '***'],
  [/\beyJ[\w-]+(?:\.[\w-]*)+/g, '***'],
  [/(?<=\b\d+)\.[\w-]{1,32}\.\d+\.[\w-]{43}\b/g, '.***'],
];

/**
 * Lines of JSON.
 *
 * @param destination standard output by default
 */
export function createLog(
  options: { readonly level: LogLevel },
  destination?: DestinationStream,
): Log {
  const output = destination === undefined ? standardOutput() : outputTo(destination);
  const settings = {
    level: options.level,
    timestamp: pino.stdTimeFunctions.isoTime,
    formatters: { level: (level: string) => ({ level }) },
  };
  const logger = pino(settings, output);
  output.onRecovered = (dropped) =>
    logger.warn({ dropped }, 'lines of this log were dropped, because they could not be written');
  return {
    request: ({ id, route: _, caller, traceparent, error, ...rest }) => {
      const facts = {
        requestId: id,
        ...rest,
        key: caller,
        ...(TRACEPARENT.test(traceparent ?? '') && { traceparent }),
      };
      logger[levelOf(rest)](
        {
          ...withoutSecrets(facts),
          ...(rest.status >= 500 && error !== undefined && described(error)),
        },
        'request',
      );
    },
    info: (message, facts = {}) => logger.info(withoutSecrets(facts), redacted(message)),
    warn: (message, facts = {}) => logger.warn(withoutSecrets(facts), redacted(message)),
    error: (message, error, facts = {}) =>
      logger.error({ ...withoutSecrets(facts), ...described(error) }, redacted(message)),
    droppedLines: () => output.dropped,
    flush: (withinMs) => output.flush(withinMs),
  };
}

function outputTo(destination: DestinationStream): Output {
  return new Output((bytes, done) => {
    destination.write(Buffer.from(bytes).toString());
    done(null, bytes.length);
  });
}

function levelOf({
  status,
  path,
}: Pick<EndedRequest, 'status' | 'path'>): 'error' | 'warn' | 'info' | 'debug' {
  // "Not ready" is the answer of a check, not a failure of the gateway.
  if (CHECKS.includes(path)) return status >= 500 ? 'warn' : 'debug';
  return status >= 500 ? 'error' : 'info';
}

function withoutSecrets(facts: Facts): Record<string, string | number | boolean> {
  const known = Object.entries(facts).flatMap(([name, value]) => {
    if (value === undefined || value === null) return [];
    // Tokens are too large for JSON numbers.
    if (typeof value === 'bigint') return [[name, String(value)]];
    return [[name, typeof value === 'string' ? redacted(value) : value]];
  });
  return Object.fromEntries(known);
}

/**
 * The parts of an error that are logged. Its other members are left out: in errors of drivers, they
 * hold requests with headers, and settings with passwords.
 */
function described(error: unknown, depth = 0): { readonly error: Record<string, unknown> } {
  if (!(error instanceof Error)) return { error: { message: redacted(String(error)) } };
  const { name, message, stack = '', cause } = error;
  const code = 'code' in error ? { code: redacted(String(error.code)) } : {};
  const because =
    cause !== undefined && depth < CAUSES_MAX ? { cause: described(cause, depth + 1).error } : {};
  return {
    error: { name, ...code, message: redacted(message), stack: redacted(stack), ...because },
  };
}

/**
 * Callers choose the text of a path. Beyond this length, a text is neither searched nor written.
 */
const TEXT_CHARS_MAX = 2_048;

function redacted(text: string): string {
  // The search covers twice the written length, so that no secret is cut in two and missed.
  const searched = text.slice(0, 2 * TEXT_CHARS_MAX);
  return SECRETS.reduce((rest, [secret, sign]) => rest.replace(secret, sign), searched).slice(
    0,
    TEXT_CHARS_MAX,
  );
}
