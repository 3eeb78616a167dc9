/**
 * The article's flow, live: real processes, really stopped, against real servers, judged by a checker that sees only
 * the recorded history. `main.ts` is what `npm run demo` runs; this is what the tests play with.
 */
export { type Cell, playCell } from './cell.js';
export type { Event } from './history.js';
export { type Protection, protections, type StoreKind, stores } from './job.js';
export { scenarios } from './scenarios/all.js';
export { isTold, type Play, playsOf, type Scenario } from './scenarios/scenario.js';
export { type Store, startLockNodes, startStore } from './services.js';
export { type Judgement, judge, type Verdict } from './verdict.js';
