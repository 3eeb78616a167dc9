import './node-version.js';
import { type DestinationStream, pino } from 'pino';
import type { LogLevel } from './config-schema.js';

/** What a line may tell besides its message. No headers, no bodies. */
type Facts = Readonly<Record<string, string | number | boolean | bigint | undefined>>;

/** One request, when it has ended. */
export interface RequestLine {
  readonly requestId: string;
  readonly method: string;
  /** Without a query; each name encoded in one way, however it was sent. */
  readonly path: string;
  readonly status: number;
  readonly durationMs: number;
  /** `ok`, the code of the problem, or `not-ready`. */
  readonly outcome: string;
  /** Who asked: the name of the API key. */
  readonly key?: string | undefined;
  readonly address?: string | undefined;
  readonly resource?: string | undefined;
  readonly token?: bigint | undefined;
  readonly writeId?: string | undefined;
  /** The header of that name. What is not as W3C's Trace Context has it is left out. */
  readonly traceparent?: string | undefined;
  /** What the gateway itself could not deal with. */
  readonly error?: unknown;
}

export interface Log {
  request(line: RequestLine): void;
  info(message: string, facts?: Facts): void;
  warn(message: string, facts?: Facts): void;
  error(message: string, error: unknown, facts?: Facts): void;
}

const TRACEPARENT = /^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/;
/** Whatever asks these asks all the time. */
const CHECKS: readonly string[] = ['/livez', '/readyz', '/metrics'];
const CAUSES_MAX = 3;

/** What is never written, wherever it turns up: in the message of a driver's error, say. */
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
  const settings = {
    level: options.level,
    timestamp: pino.stdTimeFunctions.isoTime,
    formatters: { level: (level: string) => ({ level }) },
  };
  const logger = destination === undefined ? pino(settings) : pino(settings, destination);
  return {
    request: ({ error, traceparent, ...line }) => {
      const trace = TRACEPARENT.test(traceparent ?? '') ? { traceparent } : {};
      logger[levelOf(line)](
        { ...withoutSecrets({ ...line, ...trace }), ...(error !== undefined && described(error)) },
        'request',
      );
    },
    info: (message, facts = {}) => logger.info(withoutSecrets(facts), redacted(message)),
    warn: (message, facts = {}) => logger.warn(withoutSecrets(facts), redacted(message)),
    error: (message, error, facts = {}) =>
      logger.error({ ...withoutSecrets(facts), ...described(error) }, redacted(message)),
  };
}

function levelOf({
  status,
  path,
}: Pick<RequestLine, 'status' | 'path'>): 'error' | 'warn' | 'info' | 'debug' {
  // Not to be ready is the answer of a check, and no failure of the gateway.
  if (CHECKS.includes(path)) return status >= 500 ? 'warn' : 'debug';
  return status >= 500 ? 'error' : 'info';
}

function withoutSecrets(facts: Facts): Record<string, string | number | boolean> {
  const told = Object.entries(facts).flatMap(([name, value]) => {
    if (value === undefined) return [];
    // Tokens are too long for JSON's numbers.
    if (typeof value === 'bigint') return [[name, String(value)]];
    return [[name, typeof value === 'string' ? redacted(value) : value]];
  });
  return Object.fromEntries(told);
}

/**
 * Only what is named here: errors of drivers carry requests with their headers, and settings with passwords.
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

/** Callers choose what is in a path: more of it than this is neither searched nor written. */
const TEXT_CHARS_MAX = 2_048;

function redacted(text: string): string {
  // Searched twice as far as it is written, so that no secret is cut in two and not recognized.
  const searched = text.slice(0, 2 * TEXT_CHARS_MAX);
  return SECRETS.reduce((rest, [secret, sign]) => rest.replace(secret, sign), searched).slice(
    0,
    TEXT_CHARS_MAX,
  );
}
