/**
 * Service worker that keeps every file of the page, so that the page needs no network after its
 * first visit. A new build is a new worker. The new worker serves only after all tabs of the old
 * build are closed, so a page never gets files of two builds.
 */

/** The files of the build, and a hash of them. The build sets both. */
declare const FILES: readonly string[];
declare const VERSION: string;

interface ExtendableEvent {
  waitUntil(work: Promise<unknown>): void;
}

interface FetchEvent {
  readonly request: Request;
  respondWith(reply: Promise<Response>): void;
}

/** The global scope of a service worker, which the types of a page do not contain. */
interface OfflineScope {
  readonly registration: { readonly scope: string };
  oninstall: (event: ExtendableEvent) => void;
  onactivate: (event: ExtendableEvent) => void;
  onfetch: (event: FetchEvent) => void;
}

const scope = globalThis as unknown as OfflineScope;
const { scope: base } = scope.registration;
// Caches belong to the origin, which may serve other pages.
const name = `${base} ${VERSION}`;
const addresses = new Set(FILES.map((file) => new URL(file, base).href));

scope.oninstall = (event) => {
  const files = [...addresses].map((address) => new Request(address, { cache: 'no-cache' }));
  event.waitUntil(caches.open(name).then((cache) => cache.addAll(files)));
};

scope.onactivate = (event) => {
  const isOld = (other: string): boolean => other.startsWith(`${base} `) && other !== name;
  event.waitUntil(
    caches.keys().then((all) => Promise.all(all.filter(isOld).map((old) => caches.delete(old)))),
  );
};

scope.onfetch = (event) => {
  const { request } = event;
  const [address = ''] = request.url.split('#');
  if (!addresses.has(address)) return;
  event.respondWith(
    caches.match(address, { cacheName: name }).then((kept) => kept ?? fetch(request)),
  );
};
