import { useEffect, useRef } from 'preact/hooks';

/** True if the reader wants no movement. */
export function isStill(): boolean {
  return matchMedia('(prefers-reduced-motion: reduce)').matches;
}

/** The heading of a result. It is scrolled to and focused when it appears. */
export function useArrival() {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    heading.current?.focus({ preventScroll: true });
    heading.current?.scrollIntoView({ behavior: isStill() ? 'auto' : 'smooth' });
  }, []);
  return heading;
}
