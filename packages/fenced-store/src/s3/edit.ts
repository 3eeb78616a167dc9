import { checkOptions } from '../core/check.js';
import { bodyBytes, HEADER_NAMES, type Headers } from './arguments.js';

/** The result of an `update`: a body, or a body with headers. Other headers stay as they were. */
export type Edit = string | Uint8Array | ({ readonly body: string | Uint8Array } & Headers);

const FIELDS = ['body', ...HEADER_NAMES, 'tags', 'objectLock', 'metadata'];

/**
 * Returns bytes and headers of an edit. Another field is refused: a caller who returns a token or a
 * condition expects it to be obeyed, but those are given to `update` itself. The headers are not
 * checked.
 *
 * @throws {InvalidArgumentError} there is no body, or such a field
 */
export function partsOf(edited: Edit): { readonly body: Uint8Array } & Headers {
  if (typeof edited === 'string' || edited instanceof Uint8Array)
    return { body: bodyBytes(edited) };
  const example = "{ body: 'text', contentType: 'text/plain' }, or a string";
  checkOptions(edited, FIELDS, example, 'the result of edit');
  return { ...edited, body: bodyBytes(edited.body) };
}
