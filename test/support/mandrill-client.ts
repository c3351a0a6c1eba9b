import http from 'node:http';
import https from 'node:https';
import { createRequire } from 'node:module';

// The official Node client of Mandrill, unchanged but for where it sends to. It is CommonJS without types.
const require = createRequire(import.meta.url);

/**
 * Lets `mandrill-api` send to a port of 127.0.0.1; the answer undoes that. Its host is a constant in a closure; this is
 * the way in.
 */
export function leadMandrillTo(port: number): () => void {
  const original = https.request;
  Object.assign(https, {
    request: (options: object, done: () => void) =>
      http.request({ ...options, host: '127.0.0.1', port, agent: undefined, protocol: 'http:' }, done),
  });
  return () => {
    Object.assign(https, { request: original });
  };
}

/** A client of `mandrill-api`: its groups, with their methods. */
export function createMandrill(key: string): any {
  return new (require('mandrill-api/mandrill').Mandrill)(key);
}

/** A call of one of its groups, as a promise. */
export function callMandrill(group: any, method: string, params: object = {}): Promise<any> {
  return new Promise((resolve, reject) => {
    group[method]({ ...params }, resolve, reject);
  });
}
