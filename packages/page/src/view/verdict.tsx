import type { CheckResult } from '../../../demo/src/checker.ts';

/** The checker's verdict. */
export function Verdict({ verdict, reason }: CheckResult) {
  const isSafe = verdict === 'safe' || verdict === 'refused';
  return (
    <p class={`verdict ${isSafe ? 'good' : 'bad'}`} role="status">
      <strong>{verdict.toUpperCase()}</strong> The checker says: {reason}.
    </p>
  );
}
