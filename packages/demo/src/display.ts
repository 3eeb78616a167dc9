import { createInterface } from 'node:readline';
import { setTimeout } from 'node:timers/promises';

/** Speed of a timeline: as it happens, a pause before each row, or one row for each Enter. */
export type Pace = 'live' | 'slow' | 'step';

const SLOW_MS = 800;

/** Prints texts in order. A timeline's rows wait for the pace, while the story continues. */
export class Display implements Disposable {
  readonly #write: (text: string) => void;
  readonly #pause: () => Promise<unknown>;
  readonly #input: ReturnType<typeof createInterface> | null;
  #printed: Promise<void> = Promise.resolve();

  constructor(pace: Pace, write: (text: string) => void) {
    this.#write = write;
    this.#input = pace === 'step' ? createInterface({ input: process.stdin }) : null;
    // At the end of the input, `next` resolves at once, so the rest follows without a stop.
    const enters = this.#input?.[Symbol.asyncIterator]();
    this.#pause = async () => {
      if (enters) await enters.next();
      else if (pace === 'slow') await setTimeout(SLOW_MS);
    };
  }

  /** Prints a text, without a line break. */
  text(text: string): void {
    this.#printed = this.#printed.then(() => this.#write(text));
  }

  line(text = ''): void {
    this.text(`${text}\n`);
  }

  /** Prints a line when the pace allows it. */
  row(text: string): void {
    this.#printed = this.#printed.then(this.#pause).then(() => this.#write(`${text}\n`));
  }

  /** Resolves when everything is printed. */
  async printed(): Promise<void> {
    await this.#printed;
  }

  [Symbol.dispose](): void {
    this.#input?.close();
  }
}
