import { bothRead } from './both-read.js';
import { delayedPacket } from './delayed-packet.js';
import { etagAgain } from './etag-again.js';
import { failedOverNode, jumpingClock, restartedNode } from './forgetful-nodes.js';
import { ignoredConditions } from './ignored-conditions.js';
import { lateGrants } from './late-grants.js';
import { lostReply } from './lost-reply.js';
import { counterOnOneNode, highestCounter, wipedNodes } from './naive-tokens.js';
import { pausedBeforeWrite } from './paused-before-write.js';
import { pausedGateway } from './paused-gateway.js';
import { pausedShellJob } from './paused-shell-job.js';
import type { Story } from './story.js';

export const stories: readonly Story[] = [
  pausedBeforeWrite,
  delayedPacket,
  bothRead,
  jumpingClock,
  restartedNode,
  lateGrants,
  failedOverNode,
  wipedNodes,
  counterOnOneNode,
  highestCounter,
  etagAgain,
  lostReply,
  ignoredConditions,
  pausedGateway,
  pausedShellJob,
];
