import type { Operation } from './history.ts';

/**
 * Returns a history in EDN, as Jepsen writes it: a map for each call and each end of an operation.
 *
 * Operations on stores are transactions of Elle's `rw-register`. Acquisitions have `:f :acquire`.
 * A refused or failed operation is `:fail`. An unknown one is `:info`; its process then has a new
 * number, as Elle and Knossos require. An operation on a set of locks is one operation for each
 * lock, by a process of its own.
 */
export function toEdn(history: readonly Operation[]): string {
  const numbers = new Map<string, number>();
  const last = new Map<string, { readonly callNs: number; readonly place: number }>();
  let processes = 0;
  const events = history
    .flatMap((operation) => {
      const { callNs, returnNs, outcome } = operation;
      const before = last.get(operation.process);
      const place = before?.callNs === callNs ? before.place + 1 : 0;
      last.set(operation.process, { callNs, place });
      const process = `${operation.process} ${place}`;
      const number = numbers.get(process) ?? processes++;
      numbers.set(process, number);
      if (outcome === 'unknown') numbers.delete(process);
      const type = { ok: ':ok', unknown: ':info', refused: ':fail', failed: ':fail' }[outcome];
      return [
        { operation, number, type: ':invoke', atNs: callNs },
        { operation, number, type, atNs: returnNs ?? callNs },
      ];
    })
    .toSorted((a, b) => a.atNs - b.atNs);
  return events
    .map(({ operation, number, type, atNs }, index) => {
      const { kind, token, highest, outcome } = operation;
      const isStore = ['update', 'put', 'claim', 'read'].includes(kind);
      const value = isStore
        ? transaction(operation, type)
        : `[${text(operation.object)} ${token ?? 'nil'}]`;
      const f = isStore ? ':txn' : `:${kind}`;
      const facts = isStore
        ? ` :kind :${kind} :token ${token ?? 'nil'} :highest ${highest ?? 'nil'} :outcome :${outcome}`
        : '';
      return `{:index ${index} :time ${atNs} :process ${number} :type ${type} :f ${f} :value ${value}${facts}}\n`;
    })
    .join('');
}

function transaction({ kind, object, from, value }: Operation, type: string): string {
  const key = text(object);
  const read = (found: string | null | undefined): string =>
    `[:r ${key} ${type === ':ok' ? text(found) : 'nil'}]`;
  if (kind === 'put') return `[[:w ${key} ${text(value)}]]`;
  if (kind !== 'update') return `[${read(value)}]`;
  // An update that ended before its value was computed wrote nothing.
  return value == null ? `[${read(from)}]` : `[${read(from)} [:w ${key} ${text(value)}]]`;
}

function text(value: string | null | undefined): string {
  return value == null ? 'nil' : JSON.stringify(value);
}
