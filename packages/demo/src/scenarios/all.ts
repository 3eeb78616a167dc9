import { bothRead } from './both-read.js';
import { delayedPacket } from './delayed-packet.js';
import { etagAgain } from './etag-again.js';
import { forgetfulStore } from './forgetful-store.js';
import { lostReply } from './lost-reply.js';
import { pausedBeforeWrite } from './paused-before-write.js';
import type { Scenario } from './scenario.js';

export const scenarios: readonly Scenario[] = [
  pausedBeforeWrite,
  delayedPacket,
  bothRead,
  etagAgain,
  lostReply,
  forgetfulStore,
];
