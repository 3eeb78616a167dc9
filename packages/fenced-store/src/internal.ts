/**
 * Helpers that `@fenced/client` and `@fenced/gateway` share with the stores. They may change in any
 * release, so import the other entries.
 */
import './node-version.js';

export {
  checkEdited,
  checkExpected,
  checkFunction,
  checkNoToken,
  checkObject,
  checkOptions,
  checkSignal,
  checkWholeNumber,
} from './core/check.js';
export { errorJson } from './core/json.js';
export { shown } from './core/shown.js';
export { bodyBytes, checkHeaders } from './s3/arguments.js';
export { slice } from './s3/codec/pieces.js';
export { partsOf } from './s3/edit.js';
export { checkAttempts, checkCall, checkRead } from './s3/options.js';
export { readEach } from './s3/read/each.js';
