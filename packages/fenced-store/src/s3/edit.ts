import { checkEdited, checkOptions } from '../core/check.js';
import { InvalidArgumentError } from '../core/errors.js';
import { shown } from '../core/shown.js';
import { bodyBytes, HEADER_NAMES, type Headers } from './arguments.js';

/** The result of an `update`: a body, or a body with headers. Other headers stay as they were. */
export type Edit = string | Uint8Array | ({ readonly body: string | Uint8Array } & Headers);

const FIELDS = ['body', ...HEADER_NAMES, 'tags', 'objectLock', 'metadata'];
const EXAMPLE = '{ body, contentType }';

/**
 * Returns bytes and headers of an edit. Another field is refused: a caller who returns a token or a
 * condition expects it to be obeyed, but those are given to `update` itself. The headers are not
 * checked.
 *
 * @throws {InvalidArgumentError} it is nothing, has no body, or has such a field
 */
export function partsOf(edited: Edit): { readonly body: Uint8Array } & Headers {
  checkEdited(edited);
  if (typeof edited === 'string' || edited instanceof Uint8Array)
    return { body: bodyBytes(edited) };
  if (typeof edited !== 'object' || edited === null || !('body' in edited))
    throw new InvalidArgumentError(
      `edit must return a string, a Uint8Array, or an object with a body such as ${EXAMPLE}; JSON.stringify makes text of a value value=${shown(edited)}`,
    );
  checkOptions(edited, FIELDS, EXAMPLE, 'the result of edit');
  return { ...edited, body: bodyBytes(edited.body) };
}
