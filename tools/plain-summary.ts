import type { Reporter, TestModule } from 'vitest/node';

/**
 * Ends a run with the plain line `N passed, N failed`, which any log reader can count.
 * A module that failed to load counts as one failure. So does an unhandled error.
 */
export default class PlainSummary implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], unhandledErrors: readonly unknown[]): void {
    let passed = 0;
    let failed = unhandledErrors.length;
    for (const module of modules) {
      const states = [...module.children.allTests()].map((test) => test.result().state);
      passed += states.filter((state) => state === 'passed').length;
      const broken = states.filter((state) => state === 'failed').length;
      failed += broken === 0 && module.state() === 'failed' ? 1 : broken;
    }
    process.stdout.write(`\n${passed} passed, ${failed} failed\n`);
  }
}
