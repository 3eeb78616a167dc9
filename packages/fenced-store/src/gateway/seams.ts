/** What a caller may be allowed to do. */
export type Verb = 'lease' | 'read' | 'write' | 'claim' | 'ratchet';

/** Somebody whose credentials are known. */
export interface Caller {
  readonly name: string;
  /** @param resource as in the URL: `leases/invoice/42`, `objects/a/b`, `records/invoices/42`, `ratchets/s3/a/b` */
  may(verb: Verb, resource: string): boolean;
}

/** Who may call. */
export interface Credentials {
  /** @returns null for none or unknown ones */
  authenticate(authorization: string | undefined): Promise<Caller | null>;
}

/** How tokens look on the wire. */
export interface Seal {
  /** @param resource for which the token was issued */
  seal(token: bigint, resource: string, expiresAtMs: number): string;
  /** @throws {Problem} where it was not issued for that resource, or too long ago. */
  open(text: string, resource: string): bigint;
}

/** How often each caller may call. */
export interface RateLimit {
  take(name: string): { readonly ok: true } | { readonly ok: false; readonly retryAfterMs: number };
}
