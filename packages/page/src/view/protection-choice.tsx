import { explained, type Protection, protections } from '../../../demo/src/job.ts';

/** The methods of the shipping stores that protect in this way. */
const ships: Readonly<Partial<Record<Protection, string>>> = {
  token: 'put',
  'token+cas': 'update',
  claim: 'claimAndGet',
};

/** The switches of the protections. */
export function ProtectionChoice(props: {
  readonly possible: readonly Protection[];
  readonly protection: Protection;
  readonly votesAtOnce: boolean;
  readonly hasForgettingNodes: boolean;
  readonly onChange: (choice: {
    readonly protection: Protection;
    readonly votesAtOnce: boolean;
  }) => void;
}) {
  const { possible, protection, votesAtOnce, hasForgettingNodes, onChange } = props;
  return (
    <fieldset class="choice">
      <legend>Protection</legend>
      <div class="buttons">
        {protections
          .filter((one) => possible.includes(one))
          .map((one) => (
            <label key={one} class="pill">
              <input
                type="radio"
                name="protection"
                checked={one === protection}
                onChange={() => onChange({ protection: one, votesAtOnce })}
              />
              <span>{one}</span>
            </label>
          ))}
      </div>
      <p class="note">
        {explained[protection]}.{' '}
        {ships[protection] ? (
          <>
            <code>{ships[protection]}</code> of <code>@fenced/store</code> does this.
          </>
        ) : (
          'Fenced does not rely on this.'
        )}
      </p>
      {hasForgettingNodes && (
        <label class="check">
          <input
            type="checkbox"
            checked={!votesAtOnce}
            onChange={() => onChange({ protection, votesAtOnce: !votesAtOnce })}
          />
          <span>
            A node that forgot its leases waits before it votes, unless all nodes have forgotten.
            Without this, an operator runs <code>fenced readmit --force</code>
          </span>
        </label>
      )}
    </fieldset>
  );
}
