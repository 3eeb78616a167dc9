/**
 * The article's stories with real processes, which are really stopped, and real servers. A checker
 * decides from the recorded history alone. `main.ts` is `npm run demo`; the tests use this module.
 */
export { type Cell, playCell } from './cell.js';
export { type Protection, protections, type StoreKind, stores } from './job.js';
export { type Store, startLockNodes, startLockServers, startStore } from './services.js';
export { stories } from './stories/all.js';
export { isPlayedOn, type Variant, variantsOf } from './stories/story.js';
