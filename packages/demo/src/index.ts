/**
 * The stories of Kleppmann's article and others, with real servers, and with real processes that
 * are really stopped. A checker decides from the recorded history alone. `main.ts` is `npm run
 * demo`; the tests use this module.
 */
export { type Cell, playCell } from './cell.js';
export { type Protection, protections, type StoreKind, stores } from './job.js';
export { type Store, startLockNodes, startLockServers, startStore } from './services.js';
export { stories } from './stories/all.js';
export { isPlayedOn, type Variant, variantsOf } from './stories/story.js';
