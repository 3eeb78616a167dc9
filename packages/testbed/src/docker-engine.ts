import { getContainerRuntimeClient } from 'testcontainers';

/** Resolves to true if a Docker engine answers. */
export function dockerAnswers(): Promise<boolean> {
  return getContainerRuntimeClient().then(
    () => true,
    () => false,
  );
}
