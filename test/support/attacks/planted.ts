import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createApp } from '../../../src/api/http/app.ts';
import type { Operation } from '../../../src/api/operation.ts';
import { createBodyParser } from '../../../src/api/requests/body-parser.ts';
import { NO_METRICS } from '../../../src/base/metrics.ts';
import type { ApiWorld } from '../api.ts';

/** The API with other operations over the keys of a world: what faults that are planted there do can be seen. */
export async function servePlanted({ store, clock, log }: ApiWorld, operations: readonly Operation[]) {
  const parser = createBodyParser({ metrics: NO_METRICS, clock, log });
  const app = createApp(
    { maxBodyBytes: 1_048_576, maxMessageBytes: 2_000_000, minBodyRate: 0, maxBadKeysPerMinute: 1_000_000 },
    {
      operations,
      store,
      keyUses: { note: () => undefined },
      limits: { call: () => undefined },
      parser,
      clientAddress: () => '127.0.0.1',
      partsOf: () => Object(undefined),
      peers: (_, next) => next(),
      attached: undefined,
      pages: async (ctx, next) => {
        await next();
        if (ctx.status === 200) ctx.set('X-Injected', '1');
      },
      metrics: NO_METRICS,
      clock,
      log,
    },
  );
  const server = createServer(app.callback());
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  // Bound to an address, so it has one.
  const { port } = server.address() as AddressInfo;
  return {
    base: `http://127.0.0.1:${port}`,
    async stop() {
      server.closeAllConnections();
      await new Promise<void>((resolve) => {
        server.close(() => resolve());
      });
      await parser.stop();
    },
  };
}
