import { OutcomeUnknownError } from '../core/errors.js';
import { encodedPath, segmentsOf } from './path.js';
import { Problem } from './problem.js';

/**
 * The name of a write as clients see it: kind of store, id, and the name of what was written, so that any gateway can say
 * what became of it.
 */
export interface NamedWrite {
  readonly kind: 'objects' | 'records';
  readonly id: string;
  /** The key of an object; collection and id of a record, with a slash between. */
  readonly key: string;
}

export function nameWrite({ kind, id, key }: NamedWrite): string {
  return `${kind}.${id}.${Buffer.from(key).toString('base64url')}`;
}

/** @throws {Problem} `invalid-request` */
export function parseWriteName(text: string): NamedWrite {
  const [, kind, id = '', encoded = ''] =
    /^(objects|records)\.([0-9a-f-]{32,36})\.([A-Za-z0-9_-]+)$/.exec(text) ?? [];
  const key = Buffer.from(encoded, 'base64url').toString();
  if ((kind === 'objects' || kind === 'records') && nameWrite({ kind, id, key }) === text) {
    // No name is let in here that would be refused in a path.
    segmentsOf(`/${encodedPath(key)}`);
    return { kind, id, key };
  }
  throw new Problem('invalid-request', 'this is not the writeId of an answer of this gateway');
}

/** The outcome of a write; where that is unknown, a problem that names the write as `/v1/writes` knows it. */
export async function settled<Outcome>(
  kind: NamedWrite['kind'],
  key: string,
  write: Promise<Outcome>,
): Promise<Outcome> {
  return write.catch((error: unknown) => {
    if (!(error instanceof OutcomeUnknownError)) throw error;
    const writeId = nameWrite({ kind, id: error.writeId, key });
    throw new Problem(
      'outcome-unknown',
      'the reply of the store was lost: the write may be applied, now or later. Ask what became of it, or write again with the same token',
      { members: { writeId, settle: `/v1/writes/${writeId}` }, cause: error },
    );
  });
}
