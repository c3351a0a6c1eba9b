import type { Policy } from './policy.ts';
import type { Reception } from './reception.ts';
import type { Answer, Said } from './verbs.ts';

/**
 * What a listener is there for. Everything about sessions is the same for all; a side says who may speak, what is taken, and
 * where a message goes.
 */
export interface Side {
  /** How its numbers are told apart. */
  readonly name: 'smtp' | 'submission';
  readonly policy: Policy;
  /** The account that takes mail for a domain, where mail comes in; for the log. */
  ownerOf?(domain: string): string | undefined;
  /** Opens the place that the bytes of the present transaction go to. */
  receive(said: Said, address: string): Reception;
  /** One for each session; undefined: nobody has to say who they are. */
  gate?(said: Said, connection: { readonly address: string; readonly offersTls: boolean }): Gate;
}

/** Hears a session before the verbs do, and lets through whom it knows. */
export interface Gate {
  /** Words for the answer to EHLO. */
  offers(): readonly string[];
  /** Answers a line, or leaves it to the verbs (undefined). */
  hear(line: string): Answer | undefined | Promise<Answer | undefined>;
}
