; Judges `history.edn` of `npm run torture` with Knossos and Elle, each object by itself. Both must be
; on the class path. The arguments are files. The output is a map for each of them.
(require '[elle.rw-register :as elle]
         '[jepsen.history :as history]
         '[knossos.cli :as cli]
         '[knossos.model :as model]
         '[knossos.wgl :as knossos])

; The state of one object: a dispenser of tokens has only `highest`. The rules are those of porcupine's
; model. The read of an unknown update is unknown, so `::any` fits every value.
(defrecord Ratchet [highest value]
  knossos.model.Model
  (step [before operation]
    (let [f (:f operation)
          {:keys [token from written reported] :as its} (:value operation)
          token (or token 0)
          is-same? #(or (= % ::any) (= % value))
          after (->Ratchet token (if (= written ::none) value written))]
      (if (case f
            :acquire (> token highest)
            :read (and (is-same? from) (or (nil? reported) (= reported highest)))
            :refused (and (< token highest) (= reported highest))
            (:claim :update :put) (and (>= token highest) (is-same? from)))
        (if (#{:read :refused} f) before after)
        (model/inconsistent (str f " " its " does not fit " before))))))

(defn object-of [{:keys [f value]}]
  (if (= f :txn) (second (first value)) (first value)))

(defn written-by [value]
  (or (some (fn [[f _ v]] (when (= f :w) v)) value) ::none))

; Returns [call end] as Knossos takes it, or nil if the operation constrains nothing.
(defn operations-of [[call end]]
  (let [{:keys [f kind token highest outcome value type]} end
        is-as (fn [type f its] [(assoc call :f f :value its)
                                (assoc end :type type :f f :value its)])]
    (cond
      (= f :acquire) (when (= type :ok) [(is-as :ok :acquire {:token (second value) :written ::none})])
      (not= f :txn) nil
      (= outcome :refused)
      (cond-> [(is-as :ok :refused {:token token :reported highest})]
        ; It may have raised the ratchet before a higher token came.
        (= kind :claim)
        (conj (mapv #(assoc % :process [:claim (:index call)])
                    (is-as :info :claim {:token token :from ::any :written ::none}))))
      (or (= type :fail) (and (= type :info) (= kind :read))) nil
      :else
      (let [[f1 _ found] (first value)]
        [(is-as type kind {:token token
                           :from (if (and (= f1 :r) (= type :ok)) found ::any)
                           :written (written-by value)
                           :reported highest})]))))

; Pairs of a call and its end, in the order of the calls.
(defn pairs-of [events]
  (sort-by (comp :index first)
           (first (reduce (fn [[pairs open] {:keys [process type] :as event}]
                            (if (= type :invoke)
                              [pairs (assoc open process event)]
                              [(conj pairs [(open process) event]) (dissoc open process)]))
                          [[] {}]
                          events))))

(defn knossos-says [events]
  (let [operations (mapcat operations-of (pairs-of events))
        ordered (vec (sort-by :index (apply concat operations)))]
    (:valid? (knossos/analysis (->Ratchet 0 nil) (mapv #(dissoc % :index) ordered)))))

(defn elle-says [events]
  (let [options {:consistency-models [:strict-serializable] :linearizable-keys? true :wfr-keys? true}]
    (:valid? (elle/check options (history/history (filterv #(= (:f %) :txn) events))))))

(defn verdicts [judge objects]
  (reduce (fn [found [object events]] (update found (judge events) (fnil conj (sorted-set)) object))
          {}
          objects))

(doseq [file *command-line-args*]
  (let [objects (group-by object-of (cli/read-history file))
        stores (remove (fn [[object]] (.startsWith object "lock/")) objects)
        counts #(update-vals % (fn [names] (if (< 3 (count names)) (count names) names)))]
    (prn {:file file
          :objects (count objects)
          :knossos (counts (verdicts knossos-says objects))
          :elle (counts (verdicts elle-says stores))})))
(shutdown-agents)
