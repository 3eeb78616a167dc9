import { installPackages } from './apt.js';
import { ServiceUnavailableError, TestbedError } from './errors.js';
import {
  explainMissing,
  isDebianAsRoot,
  type Need,
  originsFor,
  POSTGRES,
  REDIS,
  S3,
  variable,
} from './needs.js';
import { FAKETIME_PACKAGE, findFakeTime } from './programs.js';

/**
 * Makes sure that each service can be started, so that later steps do not fail half-way. Starts
 * nothing. On Debian as root, it installs missing services. Elsewhere it lists them all.
 */
async function setUp(): Promise<void> {
  const missing = [REDIS, POSTGRES, S3].filter((need) => !isAtHand(need));
  const wanted = missing.length > 0 ? await withoutDocker(missing) : [];
  const needed = wanted.filter(usesProgram).flatMap((need) => need.debian);
  const forTests = findFakeTime() === undefined ? [FAKETIME_PACKAGE] : [];
  if (needed.length + forTests.length > 0 && isDebianAsRoot()) {
    await installPackages([...needed, ...forTests], say).catch((error: unknown) => {
      // Only one story and some tests need libfaketime, and they report that it is missing.
      if (needed.length > 0 || !(error instanceof TestbedError)) throw error;
      say(error.message);
    });
  }
  const stillMissing = wanted.filter((need) => !isAtHand(need));
  if (stillMissing.length > 0) throw new ServiceUnavailableError(explainMissing(stillMissing));
}

/**
 * Returns the needs that Docker does not meet. Docker takes most of a second to answer, so it is
 * asked last.
 */
async function withoutDocker(needs: readonly Need[]): Promise<readonly Need[]> {
  const others = needs.filter((need) => !originsFor(need).includes('docker'));
  if (others.length === needs.length) return others;
  const { dockerAnswers } = await import('./docker-engine.js');
  return (await dockerAnswers()) ? others : needs;
}

function isAtHand(need: Need): boolean {
  return originsFor(need).some(
    (origin) =>
      (origin === 'environment' && variable(need.variable) !== undefined) ||
      (origin === 'program' && need.find() !== undefined),
  );
}

function usesProgram(need: Need): boolean {
  return originsFor(need).includes('program');
}

function say(line: string): void {
  process.stderr.write(`${line}\n`);
}

try {
  await setUp();
} catch (error) {
  if (!(error instanceof TestbedError)) throw error;
  process.stderr.write(`${error.message}\n`);
  process.exitCode = 1;
}
