/** The number of nested causes that are shown. Causes may form a circle. */
const DEPTH_MAX = 5;

/**
 * The JSON of an error.
 *
 * @param own the fields that may be shown: fields of foreign errors may hold passwords
 * @param depth the number of errors above it in the chain of causes
 */
export function errorJson(error: Error, own: object = {}, depth = 0): object {
  const { name, message, cause } = error;
  const { code } = error as { readonly code?: unknown };
  return {
    name,
    ...((typeof code === 'string' || typeof code === 'number') && { code }),
    message,
    ...factsJson(own, depth),
    ...(cause !== undefined && depth < DEPTH_MAX && { cause: causeJson(cause, depth + 1) }),
    ...(error instanceof AggregateError &&
      depth < DEPTH_MAX && { errors: error.errors.map((one) => causeJson(one, depth + 1)) }),
  };
}

/** The JSON of facts: tokens become decimal strings, errors show name, code, message and cause. */
function factsJson(facts: object, depth = 0): object {
  return Object.fromEntries(
    Object.entries(facts).map(([name, value]) => [name, valueJson(value, depth)]),
  );
}

function valueJson(value: unknown, depth: number): unknown {
  if (typeof value === 'bigint') return value.toString();
  if (value instanceof Error) return causeJson(value, depth + 1);
  if (Array.isArray(value)) return value.map((one) => valueJson(one, depth));
  if (typeof value !== 'object' || value === null || 'toJSON' in value) return value;
  return depth < DEPTH_MAX ? factsJson(value, depth + 1) : undefined;
}

/** The JSON of a cause. It need not be an error: anything can be thrown. */
function causeJson(cause: unknown, depth: number): unknown {
  if (!(cause instanceof Error)) {
    return typeof cause === 'object' || typeof cause === 'function' ? typeof cause : String(cause);
  }
  const { toJSON } = cause as { readonly toJSON?: (key: string, depth: number) => unknown };
  return typeof toJSON === 'function' ? toJSON.call(cause, '', depth) : errorJson(cause, {}, depth);
}

class Facts {
  toJSON(): object {
    return factsJson({ ...this });
  }
}

/** A copy of these facts for `JSON.stringify`, which would throw at a bigint. */
export function withJson<Of extends object>(facts: Of): Of {
  return Object.assign(new Facts(), facts);
}
