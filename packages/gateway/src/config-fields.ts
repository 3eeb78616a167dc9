import { readFileSync } from 'node:fs';
import * as z from 'zod';

/** The path of a file. It becomes the text in that file, without the line end. */
export const contents = z
  .string()
  .min(1)
  .transform((path, context) => {
    try {
      const text = readFileSync(path, 'utf8').trim();
      if (text !== '') return text;
      context.addIssue(`the file is empty path=${path}`);
    } catch (error) {
      context.addIssue(`the file cannot be read: ${(error as Error).message}`);
    }
    return z.NEVER;
  });

/** A URL. The message does not show the value, because it may contain a password. */
export function urlOf(protocols: readonly string[]): z.ZodString {
  return z
    .string()
    .refine(
      (text) => URL.canParse(text) && protocols.includes(new URL(text).protocol),
      `must be a URL that begins with ${protocols.map((protocol) => `${protocol}//`).join(' or ')}`,
    );
}

/**
 * Lets a check run even if another field of the object is wrong, so that all mistakes are reported
 * at once.
 */
export const ALWAYS: { when(): boolean } = { when: () => true };

/** The number of these fields that are given. */
export function given(fields: unknown, ...names: readonly string[]): number {
  return names.filter((name) => Object(fields)[name] !== undefined).length;
}

/** True if no two entries have the same value in that field. */
export function areDistinct(entries: unknown, field: string): boolean {
  const values = Array.isArray(entries) ? entries.map((entry) => Object(entry)[field]) : [];
  const known = values.filter((value) => value !== undefined);
  return new Set(known).size === known.length;
}

/** True for an address that only this machine can reach. */
export function isLoopback(host: string): boolean {
  return /^(localhost|127(\.\d{1,3}){3}|\[?::1\]?)$/i.test(host);
}
