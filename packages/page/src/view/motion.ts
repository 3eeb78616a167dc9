import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';

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

/** An element that is scrolled to at each step but 0, if the page has one column. */
export function useStep(step: number) {
  const element = useRef<HTMLElement>(null);
  useLayoutEffect(() => {
    if (step === 0 || !matchMedia('(max-width: 899px)').matches) return;
    element.current?.scrollIntoView({ behavior: isStill() ? 'auto' : 'smooth' });
  }, [step]);
  return element;
}
