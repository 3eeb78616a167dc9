import { InvalidArgumentError } from '@fenced/store';

/**
 * A rule that names the lease which guards an object or a record. A write with a token of another
 * lease is refused: that token could be higher, and lock out the holder of this lease. Without a
 * rule, the lease has the key's own name: `reports/a` guards the object `reports/a`, and the record
 * `a` of the collection `reports`.
 */
export interface Binding {
  /**
   * A pattern of the keys that the rule is for, such as `objects/reports/{year}/*`. It begins with
   * `objects` or `records`. `{year}` matches one segment. `*`, as the last segment, matches one
   * segment or more.
   */
  readonly keys: string;
  /** The resource of the lease, with the segments that `keys` matched: `reports/{year}`. */
  readonly lease?: string;
  /**
   * In place of `lease`: these keys accept tokens of every lease that the caller has the right to
   * take. The request names that lease in its header `Fencing-Resource`.
   */
  readonly anyLease?: boolean;
}

/**
 * Returns the resource whose lease guards a stored value; null if every lease may guard it.
 *
 * @param stored decoded: `objects/a/b`, `records/invoices/42`
 */
export type LeaseOf = (stored: string) => string | null;

const KINDS: readonly string[] = ['objects', 'records'];
const VARIABLE = /^\{[A-Za-z]\w*\}$/;

/**
 * @param bindings for each key, the first rule that matches counts
 * @throws {InvalidArgumentError}
 */
export function bindLeases(bindings: readonly Binding[]): LeaseOf {
  const rules = bindings.map((binding) => {
    const complaint = complaintAboutBinding(binding);
    if (complaint !== null)
      throw new InvalidArgumentError(`${complaint} keys=${String(binding.keys).slice(0, 80)}`);
    return { keys: binding.keys.split('/'), lease: binding.lease?.split('/') ?? null };
  });
  return (stored) => {
    const segments = stored.split('/');
    for (const { keys, lease } of rules) {
      const found = matched(keys, segments);
      if (found === null) continue;
      return lease?.map((part) => found.get(part) ?? part).join('/') ?? null;
    }
    return segments.slice(1).join('/');
  };
}

/** The mistake in a rule, if there is one. */
export function complaintAboutBinding({ keys, lease, anyLease = false }: Binding): string | null {
  if (anyLease !== (lease === undefined)) return 'needs either lease or anyLease: true';
  const parts = keys.split('/');
  if (!KINDS.includes(parts[0] ?? '') || parts.length < 2)
    return 'keys must begin with objects/ or records/';
  const variables = parts.filter((part) => part === '*' || VARIABLE.test(part));
  if (new Set(variables).size < variables.length) return 'keys has a name twice';
  const foreign = lease?.split('/').find((part) => isSpecial(part) && !variables.includes(part));
  if (foreign !== undefined) return `lease has ${foreign}, which keys does not have`;
  const all = [parts, lease?.split('/') ?? []];
  return all.every((some) => some.every((part, at) => isPart(part, at === some.length - 1)))
    ? null
    : 'each segment must be plain text, {name}, or * as the last one; none may be empty, . or ..';
}

function isSpecial(part: string): boolean {
  return /[*{}]/.test(part);
}

function isPart(part: string, isLast: boolean): boolean {
  if (part === '*') return isLast;
  return VARIABLE.test(part) || !(isSpecial(part) || ['', '.', '..'].includes(part));
}

/** The segments that match `{name}` and `*`; null if the pattern does not match. */
function matched(
  pattern: readonly string[],
  segments: readonly string[],
): ReadonlyMap<string, string> | null {
  const found = new Map<string, string>();
  const isOpen = pattern.at(-1) === '*';
  if (isOpen ? segments.length < pattern.length : segments.length !== pattern.length) return null;
  for (const [at, part] of pattern.entries()) {
    const segment = segments[at] ?? '';
    if (part === '*') found.set(part, segments.slice(at).join('/'));
    else if (VARIABLE.test(part)) found.set(part, segment);
    else if (part !== segment) return null;
  }
  return found;
}
