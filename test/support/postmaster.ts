import type { ForwardingParts } from '../../src/returns/forwarding.ts';

/** For a dispatcher that is given no mail to the postmaster. */
export const NO_POSTMASTER: ForwardingParts = {
  address: '',
  carrier: { carry: () => Promise.reject(new Error('nobody wrote to the postmaster')), async stop() {} },
};

/** Whom reports would be from, where nobody asks for one. */
export const NO_REPORTS = { hostname: 'mx.postern.test', from: 'postmaster@mx.postern.test' };
