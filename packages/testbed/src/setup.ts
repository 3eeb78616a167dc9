import { existsSync } from 'node:fs';
import { installPackages } from './apt.js';
import { ServiceUnavailableError, TestbedError } from './errors.js';
import { explainMissing, type Need, originsFor, POSTGRES, REDIS, S3, variable } from './needs.js';
import { FAKETIME_PACKAGE, findFakeTime } from './programs.js';

/**
 * Makes sure that each service can be had, so that what runs next does not fail half-way. It starts nothing.
 * On Debian as root it installs what is missing; elsewhere it says what to install, for all services at once.
 */
async function setUp(): Promise<void> {
  const missing = [REDIS, POSTGRES, S3].filter((need) => !isAtHand(need));
  const wanted = missing.length > 0 ? await withoutDocker(missing) : [];
  const needed = wanted.filter(wantsProgram).flatMap((need) => need.debian);
  const forTests = findFakeTime() === undefined ? [FAKETIME_PACKAGE] : [];
  if (needed.length + forTests.length > 0 && isDebianAsRoot()) {
    await installPackages([...needed, ...forTests], say).catch((error: unknown) => {
      // The demo does without it, and the tests that do not will say so.
      if (needed.length > 0 || !(error instanceof TestbedError)) throw error;
      say(error.message);
    });
  }
  const stillMissing = wanted.filter((need) => !isAtHand(need));
  if (stillMissing.length > 0) throw new ServiceUnavailableError(explainMissing(stillMissing));
}

/** Those that Docker does not bring. Asking it takes most of a second, so it is asked last. */
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

function wantsProgram(need: Need): boolean {
  return originsFor(need).includes('program');
}

function isDebianAsRoot(): boolean {
  return process.getuid?.() === 0 && existsSync('/etc/debian_version');
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
