import { getContainerRuntimeClient } from 'testcontainers';

/** Whether a Docker engine answers. */
export function dockerAnswers(): Promise<boolean> {
  return getContainerRuntimeClient().then(
    () => true,
    () => false,
  );
}
