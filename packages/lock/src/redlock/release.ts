import { majorityOf } from '../core/quorum.js';
import type { ReleaseOutcome } from '../lease/transport.js';
import type { Nodes, Ownership } from '../redis/nodes.js';

/**
 * Releases on the nodes that were asked. Settles once a majority has decided. Never rejects.
 *
 * The nodes that were never asked for the lock count as released, unless the lease is over. So if a
 * bare majority holds the lock, the release need not wait for the slowest of these nodes.
 *
 * @param isOver true if the lease is over: other clients may have held the lock since
 */
export async function release(
  nodes: Nodes,
  ownership: Ownership,
  limitMs: number,
  isOver: boolean,
): Promise<ReleaseOutcome> {
  const total = nodes.all.length;
  const majority = majorityOf(total);
  const broadcast = nodes.release(ownership, limitMs, isOver);
  const unasked = total - ownership.asked.length;
  for (;;) {
    const count = (answer: string): number =>
      broadcast.answers.filter((reply) => reply.answer === answer).length;
    const [released, notHeld] = [count('released'), count('not-held')];
    const isFree = !isOver && notHeld === 0 && released + unasked >= majority;
    if (isFree || released >= majority) return end('released');
    if (notHeld > 0 && notHeld + unasked > total - majority) return end('expired');
    if (broadcast.isAnswered) return end('unknown');
    await broadcast.change();
  }

  function end(outcome: ReleaseOutcome): ReleaseOutcome {
    broadcast.end();
    return outcome;
  }
}
