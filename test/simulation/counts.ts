/** The numbers that an exploration counts, over all of its worlds. */
export interface Counts {
  readonly seeds: number;
  readonly steps: number;
  readonly acquisitions: number;
  readonly readmissions: number;
  readonly writeBacks: number;
  /** Worlds in which the next node set serves at the end. */
  readonly moves: number;
  readonly carried: number;
  /** Extensions after a later lease that a rule excuses; see `History.extend`. */
  readonly excepted: number;
  /** Leases that a holder handed over to another one in its process. */
  readonly handOvers: number;
  /** The hand-overs while a node of a set that serves had no vote. */
  readonly handOversBeside: number;
}

export const NO_COUNTS: Counts = {
  seeds: 0,
  steps: 0,
  acquisitions: 0,
  readmissions: 0,
  writeBacks: 0,
  moves: 0,
  carried: 0,
  excepted: 0,
  handOvers: 0,
  handOversBeside: 0,
};
