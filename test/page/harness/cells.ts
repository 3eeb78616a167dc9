import type { Verdict } from '../../../packages/demo/src/checker.ts';
import type { Protection } from '../../../packages/demo/src/job.ts';
import type { Story } from '../../../packages/demo/src/stories/story.ts';
import { stories } from '../../../packages/page/src/stories/stories.ts';

/** A story with its switches, and the verdict that it must have. */
export interface PinnedCell {
  readonly id: string;
  readonly story: Story;
  readonly protection: Protection;
  readonly votesAtOnce: boolean;
  readonly pinned: Verdict;
  /** The part of a test's title that names the switches. */
  readonly mark: string;
}

/** Every variant of every story of the page. */
export function pinnedCells(): readonly PinnedCell[] {
  return stories.flatMap(({ id, story, votesAtOnce = {} }) =>
    [
      { votesAtOnce: false, verdicts: story.pinned, mark: '' },
      { votesAtOnce: true, verdicts: votesAtOnce, mark: 'with early votes' },
    ].flatMap(({ votesAtOnce, verdicts, mark }) =>
      (Object.entries(verdicts) as [Protection, Verdict][]).map(([protection, pinned]) => ({
        id,
        story,
        protection,
        votesAtOnce,
        pinned,
        mark,
      })),
    ),
  );
}
