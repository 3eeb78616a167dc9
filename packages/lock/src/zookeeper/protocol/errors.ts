/** Error codes of the servers that this package looks at. */
export const CODE = {
  ok: 0,
  noNode: -101,
  noAuth: -102,
  badVersion: -103,
  nodeExists: -110,
  notEmpty: -111,
} as const;

/**
 * Errors of the session or the server, and not of the request: lost connection, time limit, expired
 * session, session at another server.
 */
export const SESSION_CODES: readonly number[] = [-4, -7, -112, -118];

const NAMES: Readonly<Record<number, string>> = {
  [-1]: 'SYSTEMERROR',
  [-5]: 'MARSHALLINGERROR',
  [-6]: 'UNIMPLEMENTED',
  [-7]: 'OPERATIONTIMEOUT',
  [-8]: 'BADARGUMENTS',
  [-101]: 'NONODE',
  [-102]: 'NOAUTH',
  [-103]: 'BADVERSION',
  [-110]: 'NODEEXISTS',
  [-111]: 'NOTEMPTY',
  [-112]: 'SESSIONEXPIRED',
  [-115]: 'AUTHFAILED',
  [-118]: 'SESSIONMOVED',
};

/** The server refused a request: nothing of it was carried out. */
export class ZooKeeperError extends Error {
  readonly code: number;
  /** The position of the refused operation in a transaction; 0 for other requests. */
  readonly index: number;

  constructor(code: number, index = 0) {
    super(`ZooKeeper refused: ${NAMES[code] ?? 'error'} (${code})`);
    this.name = 'ZooKeeperError';
    this.code = code;
    this.index = index;
  }
}

/** The connection was lost before the reply: the request may be carried out, before or later. */
export class ConnectionLostError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'ConnectionLostError';
  }
}

/** The server sent bytes that are no reply. */
export class ProtocolError extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'ProtocolError';
  }
}

/** True if the server refused with one of these codes. */
export function isRefusal(error: unknown, ...codes: readonly number[]): error is ZooKeeperError {
  return error instanceof ZooKeeperError && codes.includes(error.code);
}
